// Markdown to DOM nodes: marked's lexer with our own renderer. It creates no HTML: raw HTML becomes text, and links are
// allow-listed.

import { fileName, kindOf, previewAddress } from './canvas/files.js';
import { copyText } from './dom.js';
import { enrich } from './rich.js';
import { elementOf, iconButton } from './template.js';
import { html, nothing, render } from './vendor/lit-html/lit-html.js';
import { Lexer } from './vendor/marked/marked.js';

/** @import { MarkedToken, Token, Tokens } from 'marked' */

/** @typedef {{ heading: number, depth: number, ticks: boolean }} Context */
/** @typedef {HTMLElement | string} Piece */
/** A formula in TeX; `isDisplay` puts it on a line of its own. */
/** @typedef {{ type: 'formula', raw: string, text: string, isDisplay: boolean }} Formula */

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
/** Marks around a formula. A single `$` is money more often than TeX. */
const FENCES = [
  ['\\(', '\\)'],
  ['\\[', '\\]'],
  ['$$', '$$'],
];
/** A longer formula is shown as its source. */
const LONGEST_FORMULA = 2000;

/**
 * Creates an element with properties; a string child becomes text. Tokens are a tree of many small nodes, which
 * templates would surround with markers.
 * @param {string} tag
 * @param {Record<string, unknown> | null} [properties]
 * @param {(Piece | Piece[])[]} children
 */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat());
  return element;
}

/**
 * Renders a text as nodes; `heading` is the level of a first-level heading inside it, `ticks` enables its boxes.
 * @param {string} text
 * @param {{ heading?: number, ticks?: boolean }} [options]
 */
export function renderMarkdown(text, { heading = 3, ticks = false } = {}) {
  const fragment = document.createDocumentFragment();
  fragment.append(...blocks(tokens(text), { heading, depth: 0, ticks }));
  enrich([fragment]);
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
    return new Lexer({ gfm: true, extensions: EXTENSIONS }).lex(text);
  } catch {
    const pieces = text.split(/(\n{2,})/);
    if (pieces.length === 1) return [{ type: 'paragraph', raw: text, tokens: [{ type: 'text', raw: text, text }] }];
    return pieces.flatMap((piece) => (/^\n+$/.test(piece) ? [{ type: 'space', raw: piece }] : tokens(piece)));
  }
}

/**
 * Returns the formula at the beginning of a text, if there is one.
 * @param {string} source
 * @returns {Formula | undefined}
 */
function formulaAt(source) {
  const [open = '', close = ''] = FENCES.find(([each = '']) => source.startsWith(each)) ?? [];
  const end = open ? source.slice(0, LONGEST_FORMULA).indexOf(close, open.length) : -1;
  if (end <= open.length) return undefined;
  const raw = source.slice(0, end + close.length);
  return { type: 'formula', raw, text: source.slice(open.length, end), isDisplay: open !== '\\(' };
}

/** @param {string} source */
function formulaBlockAt(source) {
  const formula = formulaAt(source);
  return formula?.isDisplay && /^[ \t]*(\n|$)/.test(source.slice(formula.raw.length)) ? formula : undefined;
}

const EXTENSIONS = { inline: [formulaAt], block: [formulaBlockAt], renderers: {}, childTokens: {} };

/**
 * Renders one block-level token as nodes, without colours and formulas: the block may still grow.
 * @param {Token} token
 * @param {{ heading?: number }} [options]
 */
export const renderToken = (token, { heading = 3 } = {}) => blocks([token], { heading, depth: 0, ticks: false });

/** @param {Token[]} all @param {Context} context @returns {Piece[]} */
function blocks(all, context) {
  if (context.depth > DEEPEST) return [all.map((token) => token.raw).join('')];
  return all.flatMap((token) => block(known(token), { ...context, depth: context.depth + 1 }) ?? []);
}

/**
 * Narrows a token to marked's own types and our extension.
 * @param {Token} token
 */
const known = (token) => /** @type {MarkedToken | Formula} */ (token);

/** @param {Formula} token */
function formula({ raw, text, isDisplay }) {
  // A wide one scrolls, with the keyboard too.
  const wide = { className: 'formula display', tabIndex: 0, role: 'group', ariaLabel: 'Formula' };
  const element = make('span', isDisplay ? wide : { className: 'formula' }, raw);
  element.dataset.tex = text;
  return element;
}

/** @param {MarkedToken | Formula} token @param {Context} context @returns {Piece | Piece[] | null} */
function block(token, context) {
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading':
      return make(`h${Math.min(6, token.depth + context.heading - 1)}`, null, inline(token.tokens, context));
    case 'paragraph':
      return make('p', null, inline(token.tokens, context));
    case 'text':
      return token.tokens ? inline(token.tokens, context) : [plain(token.text)];
    case 'code':
      return codeBlock(token);
    case 'blockquote':
      return make('blockquote', null, blocks(token.tokens, context));
    case 'list':
      return list(token, context);
    case 'table':
      return table(token, context);
    case 'hr':
      return make('hr');
    case 'formula':
      return make('p', null, formula(token));
    default:
      return make('p', null, token.raw);
  }
}

/** @param {Tokens.List} token @param {Context} context */
function list(token, context) {
  const items = token.items.map((item) => listItem(item, context));
  if (!token.ordered) return make('ul', null, items);
  return make('ol', Number(token.start) > 1 ? { start: Number(token.start) } : null, items);
}

/** @param {Tokens.ListItem} item @param {Context} context */
function listItem(item, context) {
  const content = blocks(
    item.tokens.filter((token) => token.type !== 'checkbox'),
    context,
  );
  if (!item.task) return make('li', null, content);
  const ariaLabel = item.text.slice(0, 200);
  const box = make('input', { type: 'checkbox', checked: item.checked, disabled: !context.ticks, ariaLabel });
  return make('li', { className: 'task' }, box, ' ', content);
}

/** @param {Tokens.Code} token */
function codeBlock({ lang, text }) {
  const element = elementOf(html`<div class="code"></div>`);
  /** @param {boolean} isCopied */
  const draw = (isCopied) =>
    render(
      html`<pre tabindex="0" role="group" aria-label="Code"><code
          data-lang=${(lang ?? '').split(/\s/)[0]?.slice(0, 40) || nothing} .textContent=${text}></code></pre>
        ${iconButton(isCopied ? 'check' : 'copy', isCopied ? 'Copied' : 'Copy code', copy, { look: 'copy-code' })}`,
      element,
    );
  const copy = async () => {
    if (!(await copyText(element.querySelector('code')?.textContent ?? ''))) return;
    draw(true);
    setTimeout(() => draw(false), COPIED_MS);
  };
  draw(false);
  return element;
}

/** @param {Tokens.Table} token @param {Context} context */
function table(token, context) {
  /** @param {Tokens.TableCell[]} cells @param {'th' | 'td'} tag */
  const row = (cells, tag) =>
    make(
      'tr',
      null,
      cells.map(({ tokens }, index) =>
        make(
          tag,
          { className: token.align[index] ?? '', ...(tag === 'th' && { scope: 'col' }) },
          inline(tokens, context),
        ),
      ),
    );
  const body = token.rows.map((cells) => row(cells, 'td'));
  const whole = make('table', null, make('thead', null, row(token.header, 'th')), make('tbody', null, body));
  return make('div', { className: 'table-scroll', tabIndex: 0, role: 'group', ariaLabel: 'Table' }, whole);
}

/** @param {Token[]} all @param {Context} context @returns {Piece[]} */
function inline(all, context) {
  if (context.depth > DEEPEST) return [all.map((token) => token.raw).join('')];
  const deeper = { ...context, depth: context.depth + 1 };
  return all.map(known).flatMap((token) => {
    switch (token.type) {
      case 'strong':
      case 'em':
      case 'del':
        return make(token.type, null, inline(token.tokens, deeper));
      case 'codespan':
        return make('code', null, token.text);
      case 'br':
        return make('br');
      case 'link':
        return link(token.href, inline(token.tokens, deeper), token.raw);
      case 'image':
        return link(token.href, [picture(token)], token.raw);
      case 'escape':
        // The beginning of a formula that is not finished yet.
        return /[()[\]]/.test(token.text) ? token.raw : token.text;
      case 'text':
        return token.tokens ? inline(token.tokens, deeper) : plain(token.text);
      case 'checkbox':
        return [];
      case 'formula':
        return formula(token);
      default:
        return token.raw;
    }
  });
}

/**
 * Renders a picture of the workspace; one from elsewhere would tell its server that it is seen, and is only named.
 * @param {Tokens.Image} token
 * @returns {Piece}
 */
function picture({ href, text }) {
  const words = plain(text);
  const file = FILE.exec(plain(href).trim())?.[1] ?? '';
  const src = kindOf(file) === 'image' ? previewAddress(decoded(file)) : null;
  if (src === null) return `Image: ${words || href}`;
  return make('img', { src, alt: words || fileName(file), loading: 'lazy', className: 'picture' });
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
  if (OUTSIDE.test(address)) return make('a', { href: address, target: '_blank', rel: 'noopener noreferrer' }, content);
  const file = FILE.exec(address)?.[1];
  if (file && !file.split('/').includes('..')) {
    return make(
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
