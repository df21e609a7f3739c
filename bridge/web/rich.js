// Colours of code and formulas in drawn markdown. Both libraries are large and loaded at the first use.

/** @import { Part } from './vendor/highlight/highlight.js' */

/** Longer code stays uncoloured: colouring must not be felt. */
const LONGEST_CODE = 20_000;
/** A macro of a formula may expand so often, and a size may be so many em: the text is not trusted. */
const MAX_EXPANSIONS = 1000;
const MAX_EM = 50;

/**
 * Colours the code and sets the formulas below some nodes. Without the library, or if it refuses a text, the source
 * stays.
 * @param {Iterable<Node | string>} nodes
 */
export function enrich(nodes) {
  for (const node of nodes) {
    if (!(node instanceof Element || node instanceof DocumentFragment)) continue;
    for (const code of node.querySelectorAll('code[data-lang]')) settle(colour(code));
    const inner = node.querySelectorAll('.formula');
    for (const formula of node instanceof Element && node.matches('.formula') ? [node] : inner) settle(set(formula));
  }
}

/** @param {Promise<void>} work */
const settle = (work) => void work.catch((error) => console.info('shown as its source:', error));

/** @param {Element} code */
async function colour(code) {
  const text = code.textContent ?? '';
  const language = code.getAttribute('data-lang') ?? '';
  if (!text || text.length > LONGEST_CODE) return;
  const { default: highlighter } = await import('./vendor/highlight/highlight.js');
  if (!highlighter.getLanguage(language)) return;
  const { rootNode } = highlighter.highlight(text, { language, ignoreIllegals: true })._emitter;
  code.replaceChildren(...rootNode.children.map(coloured));
}

/**
 * @param {Part} part
 * @returns {Node | string}
 */
function coloured(part) {
  if (typeof part === 'string') return part;
  const span = document.createElement('span');
  // The first word says what it is: `title.function` is a title.
  if (part.scope) span.className = `code-${part.scope.split('.')[0]}`;
  span.append(...part.children.map(coloured));
  return span;
}

/** @param {Element} formula */
async function set(formula) {
  const { default: temml } = await import('./vendor/temml/temml.js');
  const drawn = document.createElement('span');
  const displayMode = formula.classList.contains('display');
  const bounds = { maxExpand: MAX_EXPANSIONS, maxSize: [MAX_EM, MAX_EM] };
  temml.render(formula.getAttribute('data-tex') ?? '', drawn, { displayMode, throwOnError: true, ...bounds });
  formula.replaceChildren(drawn);
}
