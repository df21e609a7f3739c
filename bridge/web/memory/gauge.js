// The lines of a file against its limit, as a bar and in words.

import { number } from '../format.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** @import { FileState } from '../types/page.js' */

/** From this share on, a file is nearly full. */
const NEARLY = 0.85;

/**
 * Returns `38 of 200 lines`, counted as the writer counts them.
 * @param {Pick<FileState, 'lines' | 'limit'>} file
 */
export const linesOf = ({ lines, limit }) => `${number(lines)} of ${number(limit)} lines`;

/** @param {FileState} file */
export function gauge(file) {
  const share = Math.min(1, file.lines / file.limit);
  const look = share >= 1 ? 'full' : share >= NEARLY ? 'nearly' : '';
  return html`<svg
    class="memory-gauge ${look}"
    role="meter"
    aria-label="${file.name}, lines"
    aria-valuemin="0"
    aria-valuemax=${file.limit}
    aria-valuenow=${file.lines}
    aria-valuetext=${linesOf(file)}
    viewBox="0 0 100 6"
    preserveAspectRatio="none"
  >
    <rect width=${share * 100} height="6"></rect>
  </svg>`;
}
