// Line icons on a 24 x 24 grid; icons are decorative, so the button around them has the accessible name.

import { html } from './vendor/lit-html/lit-html.js';

/** @type {Record<string, string> & { spark: string }} */
const PATHS = {
  add: 'M12 5v14M5 12h14',
  alert: 'M12 8v5M12 16.5v.01M10.3 4.2 2.7 17.5A2 2 0 0 0 4.4 20.5h15.2a2 2 0 0 0 1.7-3L13.7 4.2a2 2 0 0 0-3.4 0z',
  archive: 'M4 4.5h16v4H4zM5.5 8.5V18a1.5 1.5 0 0 0 1.5 1.5h10a1.5 1.5 0 0 0 1.5-1.5V8.5M10 12.5h4',
  attach: 'm20 11.5-8.4 8.4a5 5 0 0 1-7.1-7.1L13 4.3a3.3 3.3 0 0 1 4.7 4.7l-8.3 8.3a1.7 1.7 0 0 1-2.4-2.4l7.6-7.6',
  back: 'M19 12H5M11 6l-6 6 6 6',
  brain:
    'M9.5 4A2.8 2.8 0 0 0 6.8 7 3 3 0 0 0 5 12' +
    'a3 3 0 0 0 1.9 5.2A2.7 2.7 0 0 0 12 18V6.5A2.5 2.5 0 0 0 9.5 4z' +
    'M14.5 4A2.8 2.8 0 0 1 17.2 7 3 3 0 0 1 19 12a3 3 0 0 1-1.9 5.2A2.7 2.7 0 0 1 12 18',
  canvas:
    'M4 5.5A1.5 1.5 0 0 1 5.5 4h5v8H4zM13.5 4h5A1.5 1.5 0 0 1 20 5.5V9h-6.5z' +
    'M13.5 12H20v6.5a1.5 1.5 0 0 1-1.5 1.5h-5zM4 15h6.5v5h-5A1.5 1.5 0 0 1 4 18.5z',
  chat:
    'M20 11.5' +
    'a7.5 7.5 0 0 1-7.8 7.5 9 9 0 0 1-3.4-.7L4 20l1.4-4.1A7.2 7.2 0 0 1 4 11.5 7.6 7.6 0 0 1 12 4' +
    'a7.6 7.6 0 0 1 8 7.5z',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  chevron: 'm9 6 6 6-6 6',
  clock: 'M12 7v5l3.2 2M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z',
  close: 'M6 6l12 12M18 6 6 18',
  copy: 'M9 9h10.5v10.5H9zM5.5 15H4.5V4.5H15v1',
  document:
    'M7 3.5h7l4.5 4.5V19a1.5 1.5 0 0 1-1.5 1.5H7A1.5 1.5 0 0 1 5.5 19V5A1.5 1.5 0 0 1 7 3.5z' +
    'M14 3.5V8h4.5M9 12.5h6M9 16h6',
  down: 'M12 5v14M6 13l6 6 6-6',
  download: 'M12 4v11M7 10.5l5 5 5-5M5 20h14',
  edit: 'M4.5 19.5l.9-4L16 4.9a1.7 1.7 0 0 1 2.4 0l.7.7a1.7 1.7 0 0 1 0 2.4L8.5 18.6z',
  forget: 'M5 7h14M10 7V4.5h4V7M7 7l.8 12a1.5 1.5 0 0 0 1.5 1.5h5.4a1.5 1.5 0 0 0 1.5-1.5L17 7M10.2 11v5.5M13.8 11v5.5',
  history: 'M4 12a8 8 0 1 0 2.6-5.9L4 8.5M4 4v4.5h4.5M12 8v4.3l3 1.8',
  keyboard:
    'M3.5 7.5A1.5 1.5 0 0 1 5 6h14a1.5 1.5 0 0 1 1.5 1.5v9A1.5 1.5 0 0 1 19 18H5a1.5 1.5 0 0 1-1.5-1.5z' +
    'M7 10v.01M10.5 10v.01M14 10v.01M17 10v.01M8 14.2h8',
  more: 'M6 12v.01M12 12v.01M18 12v.01',
  move: 'M12 3.5v17M3.5 12h17M9.5 6 12 3.5 14.5 6M9.5 18l2.5 2.5 2.5-2.5M6 9.5 3.5 12 6 14.5M18 9.5l2.5 2.5-2.5 2.5',
  note: 'M5 4.5h14V14l-5.5 5.5H5zM19 14h-5.5v5.5',
  resize: 'M9 5H5v4M15 19h4v-4M5 5l5.5 5.5M19 19l-5.5-5.5',
  retry: 'M20 12a8 8 0 1 1-2.6-5.9L20 8.5M20 4v4.5h-4.5',
  search: 'M10.8 4.5a6.3 6.3 0 1 0 0 12.6 6.3 6.3 0 0 0 0-12.6zM15.5 15.5 20 20',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M13 4.500v5h4v-5zM7 14.500v5h4v-5z',
  send: 'M12 19V5M6 11l6-6 6 6',
  session: 'M12 5.5H6A1.5 1.5 0 0 0 4.5 7v11A1.5 1.5 0 0 0 6 19.5h11a1.5 1.5 0 0 0 1.5-1.5v-6M17.5 3v6M14.5 6h6',
  spark: 'M12 3.5c.6 4.9 3.1 7.4 8 8-4.900.6-7.400 3.100-8 8-.600-4.900-3.100-7.400-8-8 4.900-.600 7.400-3.100 8-8z',
  stop: 'M7 7h10v10H7z',
  table: 'M4 5.500h16v13H4zM4 10h16M10 10v8.500',
  theme: 'M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16',
  tool:
    'M14.500 6.300a4 4 0 0 0-5.200 5.100L4 16.700 7.300 20l5.300-5.300' +
    'a4 4 0 0 0 5.100-5.200l-2.500 2.500-2.700-.500-.500-2.700z',
};

/**
 * Returns the icon of a name, as a lit template.
 * @param {string} name
 * @param {boolean} [small]
 */
export const icon = (name, small = false) =>
  html`<svg class=${small ? 'icon small' : 'icon'} viewBox="0 0 24 24" aria-hidden="true">
    <path d=${PATHS[name] ?? PATHS.spark}></path>
  </svg>`;
