// Which parts of a text field were pasted or dropped, while the person goes on typing, deleting and undoing.
//
// In the field, spans count UTF-16 units like its selection. In messages they count Unicode code points. Where it is
// uncertain how a text came into the field, it counts as pasted.

/** @import { Span } from '../types/page.js' */

/** The most spans that a message may have: see `sprite/protocol/pasted.py`. */
const MOST_SPANS = 1000;
/** Earlier contents that are remembered for undo: number, and characters in total. */
const MOST_STATES = 300;
const MOST_CHARS = 2_000_000;

export class PastedSpans {
  #text = '';
  /** @type {Span[]} */
  #spans = [];
  /** The selection before the current input. @type {Span} */
  #selection = [0, 0];
  /** Spans by earlier content: an undo brings back exactly such a content. @type {Map<string, Span[]>} */
  #states = new Map();
  #chars = 0;
  #hasPasted = false;

  get spans() {
    return this.#spans;
  }

  /**
   * Starts again with a content that the program put into the field.
   * @param {string} text @param {Span[]} spans
   */
  reset(text, spans = []) {
    this.#states.clear();
    this.#chars = 0;
    this.#text = text;
    this.#spans = joined(spans);
    this.#hasPasted = this.#spans.length > 0;
    this.#remember();
  }

  /** @param {HTMLTextAreaElement} field  before an input */
  before({ selectionStart, selectionEnd }) {
    this.#selection = [selectionStart, selectionEnd];
  }

  /** @param {HTMLTextAreaElement} field @param {string} inputType  empty for a script's input */
  changed({ value, selectionEnd }, inputType) {
    const isUndo = inputType.startsWith('history');
    const isPasted =
      inputType === '' ||
      (inputType.startsWith('insertFrom') && inputType !== 'insertFromComposition') ||
      (isUndo && this.#hasPasted);
    if (value === this.#text && !isPasted) return;
    const known = isUndo ? this.#states.get(value) : undefined;
    const [start, end] = this.#edited(value, selectionEnd);
    const grown = value.length - this.#text.length;
    this.#spans = known ?? moved(this.#spans, start, end, grown, isPasted);
    this.#hasPasted ||= isPasted;
    this.#text = value;
    this.#remember();
  }

  /**
   * Returns the part of the old content that the new one replaced.
   * @param {string} value @param {number} caret @returns {Span}
   */
  #edited(value, caret) {
    const old = this.#text;
    const [from, to] = this.#selection;
    const rest = old.length - to;
    if (from + rest <= value.length && value.startsWith(old.slice(0, from)) && value.endsWith(old.slice(to)))
      return [from, to];
    // A deletion, or an edit elsewhere. Of repeated signs, the caret tells which one went.
    const shorter = Math.min(old.length, value.length);
    let head = 0;
    while (head < shorter && old[head] === value[head]) head += 1;
    let tail = 0;
    while (tail < shorter && old.at(-1 - tail) === value.at(-1 - tail)) tail += 1;
    if (head + tail > shorter) {
      tail = Math.max(shorter - head, Math.min(tail, value.length - caret));
      head = Math.min(head, shorter - tail);
    }
    return [head, old.length - tail];
  }

  #remember() {
    const before = this.#states.get(this.#text);
    // The same words may have been typed once and pasted once.
    if (!before) this.#chars += this.#text.length;
    this.#states.delete(this.#text);
    this.#states.set(this.#text, before ? joined([...before, ...this.#spans]) : this.#spans);
    for (const [text] of this.#states) {
      if (this.#states.size <= MOST_STATES && this.#chars <= MOST_CHARS) break;
      this.#states.delete(text);
      this.#chars -= text.length;
    }
  }
}

/**
 * Returns the spans after the text from `start` to `end` was replaced by one that is `grown` longer.
 * @param {Span[]} spans @param {number} start @param {number} end @param {number} grown @param {boolean} isPasted
 */
function moved(spans, start, end, grown, isPasted) {
  /** @type {Span[]} */
  const left = [];
  for (const [from, to] of spans) {
    // Words that are typed into the middle of a paste belong to it.
    if (from < start && to > end) left.push([from, to + grown]);
    else {
      left.push([from, Math.min(to, start)]);
      left.push([Math.max(from, end) + grown, to + grown]);
    }
  }
  if (isPasted) left.push([start, end + grown]);
  return joined(left.filter(([from, to]) => from < to));
}

/** @param {Span[]} spans  @returns {Span[]} sorted, with overlapping and touching ones as one */
function joined(spans) {
  /** @type {Span[]} */
  const found = [];
  for (const [from, to] of [...spans].sort((one, other) => one[0] - other[0])) {
    const last = found.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else found.push([from, to]);
  }
  return found;
}

/**
 * Returns a field's trimmed text, and its spans in code points.
 * @param {string} value @param {Span[]} spans
 * @returns {{ text: string, pasted: Span[] }}
 */
export function toMessage(value, spans) {
  const skipped = value.length - value.trimStart().length;
  const text = value.trim();
  /** @param {number} at  a place in the field */
  const inText = (at) => Math.min(Math.max(at - skipped, 0), text.length);
  const trimmed = spans.map(([from, to]) => /** @type {Span} */ ([inText(from), inText(to)])).filter(([a, b]) => a < b);
  const [first] = trimmed;
  const last = trimmed.at(-1);
  const kept = first && last && trimmed.length > MOST_SPANS ? [/** @type {Span} */ ([first[0], last[1]])] : trimmed;
  let [at, points] = [0, 0];
  /** @param {number} to */
  const pointsUpTo = (to) => {
    for (; at < to; points += 1) at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
    return points;
  };
  return {
    text,
    pasted: joined(kept.map(([from, to]) => /** @type {Span} */ ([pointsUpTo(from), pointsUpTo(to)]))),
  };
}

/**
 * Returns the spans of a message in UTF-16 units.
 * @param {string} text @param {Span[]} pasted @returns {Span[]}
 */
export function toField(text, pasted) {
  const points = [...text];
  /** @param {number} to */
  const units = (to) => points.slice(0, to).join('').length;
  return pasted.map(([from, to]) => [units(from), units(to)]);
}
