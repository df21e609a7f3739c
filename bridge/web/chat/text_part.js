// The text of a growing reply: finished blocks are drawn once, only the last one is redrawn.

import { renderToken, tokens } from '../markdown.js';
import { enrich } from '../rich.js';
import { elementOf } from '../template.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** @import { Token } from 'marked' */
/** @import * as Types from '../types/page.js' */

/** A reference may be defined after its use: then the whole text is redrawn at its end. */
const DEFINES = /^ {0,3}\[[^\]]+\]:/m;
/** Finished blocks are grouped in pieces of this size, which the browser skips while they are not visible. */
const CHUNK_BLOCKS = 8;

export class TextPart {
  element = elementOf(html`<div class="prose"></div>`);
  #drawn = '';
  #frozenTo = 0;
  /** @type {(Element | Text)[]} */
  #tail = [];
  /** @type {Token | null} */
  #tailToken = null;
  /** @type {HTMLElement | null} */
  #chunk = null;
  #done = false;

  /** @param {Types.TextPart} part */
  update({ text, done }) {
    const source = text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text;
    if (source === this.#drawn && done === this.#done) return;
    if (!source.startsWith(this.#drawn) || (done && DEFINES.test(source))) this.#restart();
    this.#grow(source);
    if (done) enrich(this.#tail);
    this.#drawn = source;
    this.#done = done;
  }

  #restart() {
    this.element.replaceChildren();
    this.#tail = [];
    this.#tailToken = this.#chunk = null;
    this.#frozenTo = 0;
  }

  /** @param {string} source */
  #grow(source) {
    const list = tokens(source.slice(this.#frozenTo));
    const last = list.findLastIndex((each) => each.type !== 'space');
    const token = list[last];
    if (!token) return;
    if (last === 0 && this.#growCode(token)) return;
    for (const node of this.#tail) node.remove();
    for (const finished of list.slice(0, last)) this.#freeze(finished);
    this.#tail = renderToken(token).map((node) => (typeof node === 'string' ? document.createTextNode(node) : node));
    this.#tailToken = token;
    this.element.append(...this.#tail);
  }

  /** @param {Token} token */
  #freeze(token) {
    this.#frozenTo += token.raw.length;
    const nodes = renderToken(token);
    if (!nodes.length) return;
    enrich(nodes);
    if (!this.#chunk || this.#chunk.childElementCount >= CHUNK_BLOCKS) {
      this.#chunk = elementOf(html`<div class="chunk"></div>`);
      this.element.append(this.#chunk);
    }
    this.#chunk.append(...nodes);
  }

  /**
   * Appends only the new characters to a long block of code.
   * @param {Token} token
   */
  #growCode(token) {
    const before = this.#tailToken;
    if (
      before?.type !== 'code' ||
      token.type !== 'code' ||
      before.lang !== token.lang ||
      !token.text.startsWith(before.text)
    )
      return false;
    const block = this.#tail[0];
    const code = block instanceof Element ? block.querySelector('code') : null;
    if (!code) return false;
    if (code.firstChild instanceof Text) code.firstChild.appendData(token.text.slice(before.text.length));
    else code.textContent = token.text;
    this.#tailToken = token;
    return true;
  }
}
