/**
 * Feed the logs of tests/vectors to the page's store, and print the turns, open questions, state line and
 * session of each.
 *
 * node page_fold.mjs VECTORS: prints JSON, in the form of the vectors.
 */
import { readFileSync } from 'node:fs';

Object.assign(globalThis, {
  document: { visibilityState: 'visible', addEventListener() {}, createTreeWalker() {}, createComment() {} },
  requestAnimationFrame() {},
});
const { createStore } = await import('../bridge/web/store.js');
const { runState } = await import('../bridge/web/chat/run_state.js');

function part(it) {
  if (it.kind === 'text') return { text: it.text, done: it.done };
  if (it.kind === 'permission') return { question: it.request_id };
  const { name, endedAt, stopped, isError, summary } = it;
  return { tool: name, over: endedAt !== null, stopped, error: isError, summary };
}

function turn({ text, origin, askedBy, status, error, parts }) {
  return { text, origin, asked_by: askedBy, status, error: error?.message ?? null, parts: parts.map(part) };
}

function folded({ log, session }) {
  const store = createStore();
  store.setLink('ready');
  store.state.loaded = true;
  for (const [timestamp, message] of log.entries()) store.apply({ timestamp: timestamp + 1, ...message });
  const { kind, words } = runState(store.state, null);
  return {
    turns: Object.fromEntries(store.state.chat.map((entry) => [entry.missionId, turn(entry)])),
    questions: store.state.permissions.map((request) => request.request_id),
    run_state: { kind, words },
    ...(session && { session: store.state.session.session_id }),
  };
}

console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2], 'utf8')).map(folded)));
