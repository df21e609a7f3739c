// A file's lines against its limit, as a bar and in words.

import { number } from '../format.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** From here on, a file is nearly full. */
const NEARLY = 0.85;

/** `38 of 200 lines`, counted as the writer counts them. */
export const linesOf = ({ lines, limit }) => `${number(lines)} of ${number(limit)} lines`;

export const gauge = (file) => html`<meter
  class="memory-gauge"
  min="0"
  max=${file.limit}
  low=${file.limit * NEARLY}
  high=${file.limit}
  optimum="0"
  .value=${file.lines}
  aria-label="${file.name}: ${linesOf(file)}"
></meter>`;
