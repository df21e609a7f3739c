// A line between exchanges: memory has learned, or a session has ended.

import { h } from '../dom.js';
import { plural } from '../format.js';
import { iconElement } from '../icons.js';

/** @import { Notice, Page } from '../types/page.js' */

const MOST = 5;
/** Items shown at once; the others expand on request. */
const FEW = 3;

export class NoticeView {
  /**
   * @param {Notice} entry
   * @param {Page} page
   */
  constructor(entry, page) {
    this.element = entry.notice === 'learned' ? learned(entry, page) : h('p', { class: 'notice rule' }, entry.text);
    this.element.dataset.notice = entry.notice;
  }

  update() {}
}

/**
 * @param {Extract<Notice, { notice: 'learned' }>} learned
 * @param {Page} page
 */
function learned({ learnings, files }, page) {
  const rows = learnings
    .slice(0, MOST)
    .map((learning) =>
      h(
        'li',
        null,
        h('span', { class: 'badge info' }, typeName(learning.type)),
        ' ',
        h('span', null, learning.content),
        learning.id
          ? h(
              'button',
              { class: 'button quiet small', type: 'button', onclick: () => void page.openLearning(learning.id) },
              'Why?',
            )
          : null,
      ),
    );
  if (learnings.length > MOST) rows.push(h('li', { class: 'muted' }, `and ${learnings.length - MOST} more`));
  const written = files.map((name) =>
    h('button', { class: 'button quiet small mono', type: 'button', onclick: () => void page.openFile(name) }, name),
  );
  return h(
    'details',
    { class: 'notice learned', open: learnings.length <= FEW },
    h(
      'summary',
      null,
      iconElement('brain', true),
      h('span', { class: 'grow' }, `Sprite learned ${plural(learnings.length, 'thing')}`),
      iconElement('chevron', true),
    ),
    h('ul', { class: 'plain' }, rows),
    written.length ? h('p', { class: 'row small-text muted written' }, 'Written to ', written) : null,
  );
}

/** @param {string} type */
const typeName = (type = '') => type.toLowerCase().replaceAll('_', ' ');
