// The notification settings: on or off in this browser, full or short texts, a test.

import { wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { choices, choose, state, test, turnOff, turnOn } from './notifications.js';

/** @import { TemplateResult } from 'lit-html' */
/** @import { Page } from '../types/page.js' */
/** @import { Choices, State } from './notifications.js' */

const WHEN =
  'When no page is open, this browser tells you when Sprite asks for your permission, has done something by ' +
  'itself, or has used up its budget.';
const APPLE_MOBILE = /iPhone|iPad/;

/** @param {Page} page */
export async function showNotifications(page) {
  const body = elementOf(html`<div class="notifications"></div>`);
  const panel = new Panel(page, body);
  await panel.load();
  await page.dialog({ title: 'Notifications', body, actions: [{ label: 'Close', value: null }] });
}

class Panel {
  #busy = false;
  /** @type {State} */
  #state = 'off';
  /** @type {Choices | null} */
  #choices = null;
  #problem = '';
  #news = '';

  /** @param {Page} page @param {HTMLElement} element */
  constructor(page, element) {
    this.page = page;
    this.element = element;
  }

  async load() {
    await this.#attempt(async () => {
      this.#state = await state();
      this.#choices = await choices();
    });
  }

  /**
   * Runs one action at a time; errors are shown here, because a toast is hidden behind the dialog.
   * @param {() => Promise<unknown>} act
   * @param {string} [news]
   */
  async #attempt(act, news = '') {
    this.#busy = true;
    this.#problem = '';
    this.#news = '';
    this.#draw();
    try {
      await act();
      this.#news = news;
    } catch (problem) {
      this.#problem = wordsOf(problem);
    }
    this.#state = await state();
    this.#busy = false;
    this.#draw();
  }

  /** @param {boolean} words */
  #choose(words) {
    void this.#attempt(async () => {
      await choose({ words });
      this.#choices = { words };
    });
  }

  #draw() {
    const { page } = this;
    render(
      html`
        <p>${WHEN}</p>
        ${this.#here()}
        ${this.#choices === null ? nothing : this.#says(this.#choices)}
        ${
          page.install.isOffered()
            ? html`<section>
                <h3>As an app</h3>
                <p>Sprite can have a window and an icon of its own.</p>
                <button class="button small" type="button" @click=${() => void page.install.ask()}>Install</button>
              </section>`
            : nothing
        }
        <p class="small-text" role="status">${this.#news}</p>
        ${this.#problem ? html`<p class="bad-text" role="alert">${this.#problem}</p>` : nothing}
      `,
      this.element,
    );
  }

  #here() {
    /** @type {Record<State, TemplateResult>} */
    const shown = {
      unsupported: html`<p>${unsupported()}</p>`,
      denied: html`<p>
        This browser blocks them. Click the icon to the left of the address, set Notifications to Allow, and open this
        again.
      </p>`,
      off: html`<p>They are off.</p>
        <div class="row">
          ${this.#button('Turn on', () => turnOn(), 'Notifications are on in this browser.', true)}
        </div>`,
      on: html`<p>They are on.</p>
        <div class="row">
          ${this.#button('Send a test', () => test(), 'A test was sent. It comes in a moment.')}
          ${this.#button('Turn off', () => turnOff(), 'Notifications are off in this browser.')}
        </div>`,
    };
    return html`<section data-state=${this.#state}>
      <h3>In this browser</h3>
      ${shown[this.#state]}
    </section>`;
  }

  /** @param {string} label @param {() => Promise<unknown>} act @param {string} news */
  #button(label, act, news, primary = false) {
    return html`<button
      class=${primary ? 'button small primary' : 'button small'}
      type="button"
      ?disabled=${this.#busy}
      @click=${() => void this.#attempt(act, news)}
    >
      ${label}
    </button>`;
  }

  /** @param {Choices} choices */
  #says({ words }) {
    /** @param {boolean} value @param {string} label */
    const option = (value, label) =>
      html`<label class="row">
        <input
          type="radio"
          name="words"
          .checked=${words === value}
          ?disabled=${this.#busy}
          @change=${() => this.#choose(value)}
        />
        <span>${label}</span>
      </label>`;
    return html`<fieldset class="plain">
      <legend>What they say, wherever you get them</legend>
      ${option(false, 'Only that Sprite has something for you')} ${option(true, 'What it is about')}
      <p class="small-text muted">
        The words may appear on a locked screen. With them, you can answer Sprite’s questions there.
      </p>
    </fieldset>`;
  }
}

function unsupported() {
  if (!isSecureContext) return 'This browser allows notifications only over https, or on the bridge’s own machine.';
  if (APPLE_MOBILE.test(navigator.userAgent))
    return 'On an iPhone or iPad, share this page to the Home Screen first, and open it from there.';
  return 'This browser cannot show notifications.';
}
