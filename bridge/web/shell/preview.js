// Preview of a person's file in a dialog: text, an image or a PDF. Its content cannot run here: text stays text, an
// image is only drawn, and a PDF opens in the browser's own viewer, which isolates the file's scripts.

import { downloadAddress, fileName, kindOf, previewAddress, visible } from '../canvas/files.js';
import { bytes } from '../format.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { Page } from '../types/page.js' */
/** @import { TemplateResult } from 'lit-html' */

/** The size up to which the bridge shows a text. */
const TEXT_BYTES = 256 * 1024;
/** Larger images and documents need another program. */
const MOST_BYTES = 64 * 1024 * 1024;

/**
 * @typedef {object} PreviewFile
 * @property {string} path  from the workspace
 * @property {number | null} size  in bytes, where it is known
 */

/**
 * Shows a file until the dialog is closed; returns `delete` if the person requests it and `mayDelete` is set.
 * @param {Pick<Page, 'dialog'>} page
 * @param {PreviewFile} file
 * @param {{ mayDelete?: boolean }} [how]
 * @returns {Promise<'delete' | null>}
 */
export function showPreview(page, file, { mayDelete = false } = {}) {
  const gone = new AbortController();
  const body = elementOf(html`<div class="preview"></div>`);
  void draw(body, file, gone.signal);
  /** @type {import('../types/page.js').DialogAction<'delete'>[]} */
  const actions = [{ label: 'Close', value: null, primary: true }];
  if (mayDelete) actions.unshift({ label: 'Delete…', value: 'delete', danger: true });
  const title = visible(fileName(file.path));
  return page.dialog({ title, body, actions, wide: true }).finally(() => gone.abort());
}

/** @param {HTMLElement} body @param {PreviewFile} file @param {AbortSignal} gone */
async function draw(body, file, gone) {
  /** @param {TemplateResult} shown */
  const show = (shown) => render(html`${head(file)}${shown}`, body);
  const address = previewAddress(file.path);
  const kind = kindOf(file.path);
  if (address === null) {
    show(words('This file cannot be shown or downloaded here. Ask the agent about it.'));
  } else if (kind !== 'text' && (file.size ?? 0) > MOST_BYTES) {
    show(words('This file is too large to be shown here. Download it to open it.'));
  } else if (kind === 'image') {
    const failed = () => show(words('This picture cannot be shown. It may be damaged, moved or deleted.'));
    show(html`<img class="preview-image" src=${address} alt=${visible(fileName(file.path))} @error=${failed} />`);
  } else if (kind === 'pdf') {
    show(html`<iframe class="preview-pdf" src=${address} title=${visible(fileName(file.path))}></iframe>`);
  } else {
    show(html`<div class="skeleton" role="status" aria-label="Loading"></div>`);
    const shown = await text(address, file, gone);
    if (!gone.aborted) show(shown);
  }
}

/** @param {PreviewFile} file */
function head({ path, size }) {
  const address = downloadAddress(path);
  return html`<p class="preview-head small-text">
    <span class="mono preview-path">${visible(path)}</span>
    ${size === null ? nothing : html`<span class="tabular">${bytes(size)}</span>`}
    ${
      address === null ? nothing : html`<a class="button small" href=${address} download=${fileName(path)}>Download</a>`
    }
  </p>`;
}

/**
 * Returns the shown part of a text, or the reason why it is not shown.
 * @param {string} address
 * @param {PreviewFile} file
 * @param {AbortSignal} gone
 */
async function text(address, { size }, gone) {
  try {
    const answer = await fetch(address, { signal: gone, headers: { Accept: 'application/json' } });
    if (!answer.ok) return words(await problemIn(answer));
    const charset = /charset=([\w-]+)/u.exec(answer.headers.get('Content-Type') ?? '')?.[1];
    const content = await answer.arrayBuffer();
    const shown = new TextDecoder(charset).decode(content);
    if (shown === '') return words('This file is empty.');
    const isCut = content.byteLength >= TEXT_BYTES && size !== TEXT_BYTES;
    return html`<pre class="mono preview-text" tabindex="0">${shown}</pre>
      ${isCut ? words(`These are its first ${bytes(TEXT_BYTES)}. Download it to see the rest.`) : nothing}`;
  } catch {
    return words('The file cannot be fetched at the moment. Close this and try again.');
  }
}

/** @param {Response} answer */
async function problemIn(answer) {
  const said = /** @type {{ error?: { message?: string } } | null} */ (await answer.json().catch(() => null));
  return said?.error?.message ?? 'The file cannot be fetched at the moment. Close this and try again.';
}

/** @param {string} said */
const words = (said) => html`<p role="status">${said}</p>`;
