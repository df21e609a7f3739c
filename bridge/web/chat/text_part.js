// A reply's text while it grows: finished blocks are drawn once and stay, only the last one is drawn again.

import { h } from '../dom.js';
import { renderToken, tokens } from '../markdown.js';

/** @import { Token } from 'marked' */
/** @import * as Types from '../types/page.js' */

/** A reference may be defined below its use: then the whole text is drawn once more at its end. */
const DEFINES = /^ {0,3}\[[^\]]+\]:/m;
/** So many finished blocks stand together in a piece that the browser leaves out while it is not in sight. */
const CHUNK_BLOCKS = 8;

export class TextPart {
  element = h('div', { class: 'prose' });
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
    if (!this.#chunk || this.#chunk.childElementCount >= CHUNK_BLOCKS) {
      this.#chunk = h('div', { class: 'chunk' });
      this.element.append(this.#chunk);
    }
    this.#chunk.append(...nodes);
  }

  /**
   * A long block of code grows by its new characters alone.
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
