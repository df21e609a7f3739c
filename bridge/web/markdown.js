// Markdown to DOM nodes: marked's lexer with our own renderer. It creates no HTML: raw HTML becomes text, and links are
// allow-listed.

import { copyText, h } from './dom.js';
import { iconElement } from './icons.js';
import { Lexer } from './vendor/marked/marked.js';

/** @import { MarkedToken, Token, Tokens } from 'marked' */

/** @typedef {{ heading: number, depth: number }} Context */
/** @typedef {HTMLElement | string} Piece */

const OUTSIDE = /^(https?:|mailto:)/i;
/** A path to a workspace file, as the agent writes it. */
const FILE = /^(?:\.?\/)?((?:documents|artifacts)\/[^?#]+)$/;
/** @type {Record<string, string>} */
const ENTITIES = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
  hellip: '…',
  mdash: '—',
  ndash: '–',
  copy: '©',
  rarr: '→',
  larr: '←',
  middot: '·',
  times: '×',
};
/** A list or quote nested more deeply is shown as its source. */
const DEEPEST = 40;
const COPIED_MS = 1500;

/**
 * Renders a text as nodes; `heading` is the level of a first-level heading inside it.
 * @param {string} text
 * @param {{ heading?: number }} [options]
 */
export function renderMarkdown(text, { heading = 3 } = {}) {
  const fragment = document.createDocumentFragment();
  fragment.append(...blocks(tokens(text), { heading, depth: 0 }));
  return fragment;
}

/**
 * Returns the tokens of a text. Text that the recursive lexer rejects, for example with endless nesting, becomes a
 * paragraph.
 * @param {string} text
 * @returns {Token[]}
 */
export function tokens(text) {
  try {
    return new Lexer({ gfm: true }).lex(text);
  } catch {
    const pieces = text.split(/(\n{2,})/);
    if (pieces.length === 1) return [{ type: 'paragraph', raw: text, tokens: [{ type: 'text', raw: text, text }] }];
    return pieces.flatMap((piece) => (/^\n+$/.test(piece) ? [{ type: 'space', raw: piece }] : tokens(piece)));
  }
}

/**
 * Renders one block-level token as nodes.
 * @param {Token} token
 * @param {{ heading?: number }} [options]
 */
export const renderToken = (token, { heading = 3 } = {}) => blocks([token], { heading, depth: 0 });

/**
 * @param {Token[]} all
 * @param {Context} context
 * @returns {Piece[]}
 */
function blocks(all, context) {
  if (context.depth > DEEPEST) return [all.map((token) => token.raw).join('')];
  return all.flatMap((token) => block(known(token), { ...context, depth: context.depth + 1 }) ?? []);
}

/**
 * Narrows a token to marked's own types: no extension is registered, so there are no others.
 * @param {Token} token
 */
const known = (token) => /** @type {MarkedToken} */ (token);

/**
 * @param {MarkedToken} token
 * @param {Context} context
 * @returns {Piece | Piece[] | null}
 */
function block(token, context) {
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading':
      return h(`h${Math.min(6, token.depth + context.heading - 1)}`, null, inline(token.tokens, context));
    case 'paragraph':
      return h('p', null, inline(token.tokens, context));
    case 'text':
      return token.tokens ? inline(token.tokens, context) : [plain(token.text)];
    case 'code':
      return codeBlock(token);
    case 'blockquote':
      return h('blockquote', null, blocks(token.tokens, context));
    case 'list':
      return list(token, context);
    case 'table':
      return table(token, context);
    case 'hr':
      return h('hr');
    default:
      return h('p', null, token.raw);
  }
}

/**
 * @param {Tokens.List} token
 * @param {Context} context
 */
function list(token, context) {
  const items = token.items.map((item) => listItem(item, context));
  if (!token.ordered) return h('ul', null, items);
  return h('ol', Number(token.start) > 1 ? { start: Number(token.start) } : null, items);
}

/**
 * @param {Tokens.ListItem} item
 * @param {Context} context
 */
function listItem(item, context) {
  const content = blocks(
    item.tokens.filter((token) => token.type !== 'checkbox'),
    context,
  );
  if (!item.task) return h('li', null, content);
  const box = h('input', {
    type: 'checkbox',
    checked: item.checked,
    disabled: true,
    'aria-label': item.checked ? 'Done' : 'To do',
  });
  return h('li', { class: 'task' }, box, ' ', content);
}

/** @param {Tokens.Code} token */
function codeBlock(token) {
  const code = h(
    'code',
    token.lang ? { dataset: { lang: (token.lang.split(/\s/)[0] ?? '').slice(0, 40) } } : null,
    token.text,
  );
  const button = h(
    'button',
    { class: 'icon-button small copy-code', type: 'button', 'aria-label': 'Copy code', title: 'Copy code' },
    iconElement('copy', true),
  );
  button.addEventListener('click', async () => {
    if (!(await copyText(code.textContent))) return;
    button.replaceChildren(iconElement('check', true));
    button.setAttribute('aria-label', 'Copied');
    setTimeout(() => {
      button.replaceChildren(iconElement('copy', true));
      button.setAttribute('aria-label', 'Copy code');
    }, COPIED_MS);
  });
  return h('div', { class: 'code' }, h('pre', { tabIndex: 0, role: 'group', 'aria-label': 'Code' }, code), button);
}

/**
 * @param {Tokens.Table} token
 * @param {Context} context
 */
function table(token, context) {
  /**
   * @param {'th' | 'td'} tag
   * @param {Tokens.TableCell} content
   * @param {number} index
   */
  const cell = (tag, content, index) =>
    h(tag, { class: token.align[index] ?? '', ...(tag === 'th' && { scope: 'col' }) }, inline(content.tokens, context));
  return h(
    'div',
    { class: 'table-scroll', tabIndex: 0, role: 'group', 'aria-label': 'Table' },
    h(
      'table',
      null,
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          token.header.map((content, index) => cell('th', content, index)),
        ),
      ),
      h(
        'tbody',
        null,
        token.rows.map((row) =>
          h(
            'tr',
            null,
            row.map((content, index) => cell('td', content, index)),
          ),
        ),
      ),
    ),
  );
}

/**
 * @param {Token[]} all
 * @param {Context} context
 * @returns {Piece[]}
 */
function inline(all, context) {
  if (context.depth > DEEPEST) return [all.map((token) => token.raw).join('')];
  const deeper = { ...context, depth: context.depth + 1 };
  return all.map(known).flatMap((token) => {
    switch (token.type) {
      case 'strong':
      case 'em':
      case 'del':
        return h(token.type, null, inline(token.tokens, deeper));
      case 'codespan':
        return h('code', null, token.text);
      case 'br':
        return h('br');
      case 'link':
        return link(token.href, inline(token.tokens, deeper), token.raw);
      case 'image':
        return link(token.href, [`Image: ${plain(token.text) || token.href}`], token.raw);
      case 'escape':
        return token.text;
      case 'text':
        return token.tokens ? inline(token.tokens, deeper) : plain(token.text);
      case 'checkbox':
        return [];
      default:
        return token.raw;
    }
  });
}

/**
 * Renders a link if its target is safe, otherwise its source.
 * @param {string} href
 * @param {Piece[]} content
 * @param {string} raw
 * @returns {Piece}
 */
function link(href, content, raw) {
  const address = plain(href).trim();
  if (OUTSIDE.test(address)) return h('a', { href: address, target: '_blank', rel: 'noopener noreferrer' }, content);
  const file = FILE.exec(address)?.[1];
  if (file && !file.split('/').includes('..')) {
    return h(
      'a',
      { href: `/files/${decoded(file).split('/').map(encodeURIComponent).join('/')}`, download: '' },
      content,
    );
  }
  return raw;
}

/** @param {string} path */
function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/**
 * Decodes entities, which the lexer leaves for an HTML parser.
 * @param {string} text
 */
function plain(text) {
  if (!text.includes('&')) return text;
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,8}));/gi, (whole, decimal, hex, name) => {
    if (name) return ENTITIES[name.toLowerCase()] ?? whole;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}
