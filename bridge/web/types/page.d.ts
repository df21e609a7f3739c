// Types that the page's parts share. A type that a part creates is defined there and named here for the others.

import type { TemplateResult } from 'lit-html';
import type {
  Ack,
  AddActionRequest,
  Block,
  Card,
  ChatMessage,
  CurationRow,
  FileCounts,
  FileResult,
  ForgetRequest,
  FoundHit,
  LearningRow,
  LinkState,
  MemoryState,
  Messages,
  NextDue,
  PermissionRequest,
  PermissionResolved,
  ReachResult,
  SessionState,
  Stack,
  Status,
} from './messages.js';

export type * from './messages.js';

// --- messages ---

export type Sent = Messages['sent'];
export type Heard = Messages['heard'];
export type HeardType = keyof Heard;
export type AgentEvent = Heard['agent_event'];

/** A received message of one type. */
export interface MessageOf<T extends HeardType> {
  type: T;
  id: string;
  timestamp: number;
  seq?: number | null;
  reply_to?: string | null;
  payload: Heard[T];
}
export type Message = { [T in HeardType]: MessageOf<T> }[HeardType];

/** The answer to a request of a type. */
export type Answer<T extends keyof Sent, P> = T extends 'memory'
  ? Extract<Heard['memory_result'], { op: P extends { op: infer O } ? O : never }>
  : T extends 'system'
    ? Status
    : T extends 'reach'
      ? ReachResult
      : Ack;

export interface AskOptions {
  /** In milliseconds. */
  timeout?: number;
  signal?: AbortSignal;
  id?: string;
}

// --- state ---

export interface Link {
  state: LinkState['state'] | 'offline' | 'signed-out';
  detail: string;
  /** In milliseconds, as Date.now(). */
  since: number;
  /** The action that the bridge offers to the person. */
  offer?: LinkState['offer'];
  /** The time of the agent's replica, in seconds since 1970. */
  keptAt?: number | null;
}

export interface Limits {
  frame_bytes: number;
  mission_chars: number;
  upload_chunk_bytes: number;
  upload_bytes: number;
}

export interface State {
  link: Link;
  limits: Limits;
  loaded: boolean;
  session: SessionState;
  status: Status | null;
  model: string | null;
  /** The next due action, or null. */
  nextDue: NextDue | null;
  /** The person's time zone that the sprite stores. */
  tz: string;
  stacks: Stack[];
  cards: Map<string, Card>;
  memory: MemoryState | null;
  chat: Entry[];
  permissions: PermissionPart[];
}

export type Topic = Exclude<keyof State, 'limits' | 'model' | 'tz'> | 'outbox';

// --- the conversation ---

export type Origin = NonNullable<ChatMessage['origin']>;
export type Decision = NonNullable<PermissionResolved['decision']>;
export type ExchangeStatus = 'queued' | 'sent' | 'running' | 'complete' | 'interrupted' | 'error';

export interface TextPart {
  kind: 'text';
  key: number;
  text: string;
  done: boolean;
  /** The time of its last piece, in milliseconds. */
  at: number;
}

export interface ToolPart {
  kind: 'tool';
  key: number;
  toolUseId: string;
  name: string;
  input: ToolInput;
  /** A description of the call, if its input is not stored. */
  title: string | null;
  startedAt: number;
  endedAt: number | null;
  summary: string | null;
  isError: boolean;
  stopped: boolean;
  /** The last lines that a running command has printed. */
  output?: string;
  /** The person's answer to the question about it; undefined if they were not asked. */
  answer?: Decision | null;
}

export interface PermissionPart extends Omit<PermissionRequest, 'kind'> {
  kind: 'permission';
  key: number;
  /** Undefined while the request is open, null if nobody answered in time. */
  decision: Decision | null | undefined;
}

export type ToolInput = Record<string, unknown>;
export interface NotePart {
  kind: 'note';
  key: number;
  text: string;
}

export type Part = TextPart | ToolPart | PermissionPart | NotePart;

/** A part of a text, half-open; in messages it counts Unicode code points. */
export type Span = [number, number];

/** A person's message and everything that followed. */
export interface Exchange {
  kind: 'exchange';
  key: number;
  missionId: string | null;
  text: string | null;
  /** The pasted parts of a person's message. */
  pasted: Span[];
  sessionId: string | null;
  /** The origin of its turn. */
  origin: Origin;
  /** The program that sent the message; null for the person's own, and for turns without a message. */
  askedBy: string | null;
  /** In Unix seconds. */
  at: number;
  status: ExchangeStatus;
  parts: Part[];
  error: { code: string; message: string; retryable: boolean; action?: string | null; details?: string } | null;
  cost: number | null;
  ms: number | null;
  /** In milliseconds, as Date.now(). */
  startedAt: number | null;
  /** Since when it sums up the older part of the conversation, as Date.now(). */
  compacting: number | null;
  /** The thoughts of the model while it thinks, and since when (as Date.now()). */
  thoughts: { text: string; since: number } | null;
  /** Why the model does not answer, and since when (as Date.now()), while it is asked again. */
  trouble: { words: string; since: number } | null;
  /** Whether an earlier attempt was interrupted before it had an effect. */
  isBegunAgain: boolean;
  rowId: number | null;
  /** The hits of its turn's searches of memory. */
  found: FoundHit[];
  /** Whether file changes of its turn were taken back, as of the load. */
  undone: boolean;
  /** The number of files that its turn changed. */
  changes: FileCounts | null;
  /** Grows with each change: views compare it to decide whether to redraw. */
  version: number;
}

/** A line between exchanges: what memory has learned there. */
export interface Notice extends Taught {
  kind: 'notice';
  key: number;
  version: number;
  isAnswered?: boolean;
}

/** What curations taught; `at` in Unix seconds. */
export interface Taught {
  ids: number[];
  at: number;
  learnings: LearningRow[];
  files: string[];
}

export type Entry = Exchange | Notice;

// --- the canvas ---

export interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}
export type Grip = 'move' | 'resize';
export type BlockData = Block['data'];

// --- memory ---

export type MemoryClient = ReturnType<typeof import('../memory/client.js').createClient>;
export type MemoryFile = Pick<FileResult, 'name' | 'content' | 'version' | 'drift' | 'drifted'>;
/** A person's changes to an action; an empty text removes its due time or repetition. */
export type ActionDraft = Partial<Pick<AddActionRequest, 'content' | 'due' | 'rrule' | 'tz'>> & { priority?: number };
/** Exactly one of the members. */
export type ForgetTarget = Pick<ForgetRequest, 'text' | 'turn' | 'session' | 'learning'>;

/** Actions available in all of memory's views. */
/** The person's word on an unverified learning. */
export type LearningAnswer = 'confirm' | 'retire' | 'edit';

export interface MemoryActs {
  openTurn(id: number, quote?: string | null): unknown;
  openFile(name: string, version?: number): unknown;
  openLearning(id: number): unknown;
  openLearningsOf(curation: CurationRow): unknown;
  answer(row: LearningRow, action: LearningAnswer): unknown;
  /** Shows the learnings that a line of a memory file rests on. */
  why(line: string): unknown;
  forget(row: LearningRow): unknown;
  forgetWords(): unknown;
  flush(): unknown;
  draft(text: string): void;
}

// --- parts ---

export type Store = ReturnType<typeof import('../store.js').createStore>;
export type Connection = ReturnType<typeof import('../connection.js').createConnection>;
export type Outbox = ReturnType<typeof import('../outbox.js').createOutbox>;
export type Commands = ReturnType<typeof import('../shell/commands.js').createCommands>;
export type Conversation = import('../chat/conversation.js').Conversation;

export interface OutboxItem {
  id: string;
  text: string;
  pasted: Span[];
  /** Paths of pictures. */
  images: string[];
  stackId: string | null;
  state: 'sending' | 'failed';
  problem: string | null;
  at: number;
}

export type PanelName = 'chat' | 'canvas' | 'todo' | 'memory';

/** Events that the layout sends to a panel. */
export interface Panel {
  shown?(): void;
  hidden?(): void;
  focus?(): void;
}

export interface Row {
  title: string;
  group?: string;
  hint?: string;
  keys?: string | string[];
  run(): unknown;
}

/** An action that can be run by its name or its keys. */
export interface Command extends Row {
  id: string;
  group: string;
  when?(): boolean;
}

/** Returns rows for the text that is typed into the palette. */
export type Provide = (query: string) => Row[] | Promise<Row[]>;

export interface Toast {
  text: string;
  kind?: 'info' | 'success' | 'error' | 'busy';
  action?: { label: string; run(): unknown } | null;
  stays?: boolean;
}

export interface DialogAction<T> {
  label: string;
  /** A function is called when the dialog is answered. */
  value: T | null | (() => T | null);
  primary?: boolean;
  danger?: boolean;
}

export type DialogBody = string | Node | TemplateResult | null;

export interface Dialog<T> {
  title: string;
  body?: DialogBody;
  actions: DialogAction<T>[];
  wide?: boolean;
}

export interface Confirm {
  title: string;
  body?: DialogBody;
  confirm?: string;
  danger?: boolean;
}

export interface Prompt {
  title: string;
  label: string;
  value?: string;
  confirm?: string;
  maxlength?: number;
}

export type Announce = (text: string) => void;

/** Passed to every panel: the page's parts, and actions of the whole page. */
export interface Page {
  store: Store;
  connection: Connection;
  outbox: Outbox;
  commands: Commands;
  announce: Announce;
  /** Returns a function that removes the toast. */
  toast(toast: Toast): () => void;
  confirm(question: Confirm): Promise<boolean>;
  prompt(question: Prompt): Promise<string | null>;
  dialog<T>(question: Dialog<T>): Promise<T | null>;
  openPalette(): void;
  /** Whether the built-in offline model answers; its cost figures are meaningless. */
  isOffline(): boolean;
  stackId(): string | null;
  setStack(id: string | null): void;
  openPanel(name: PanelName): void;
  unread(name: PanelName): void;
  /** Puts a text into the message field; `pasted` are its pasted spans. */
  draft(text: string, pasted?: Span[]): void;
  openTurn(id: number): Promise<void>;
  openFile(name: string): Promise<void>;
  openLearning(id: number): Promise<void>;
  answerLearning(row: LearningRow, action: LearningAnswer): Promise<void>;
  /** Loads the memory panel, which adds commands. */
  loadMemory(): Promise<ReturnType<typeof import('../memory/memory.js').mountMemory>>;
  searchMemory(query?: string): Promise<void>;
  /** Shows the list of actions. */
  openActions(): void;
  openCard(id: string): void;
  openMission(id: string): Promise<boolean>;
  /** Shows the open permission request, or a message that there is none. */
  openQuestion(): void;
  openNotifications(): Promise<void>;
  /** Installs the page as an app, if the browser supports it. */
  install: { isOffered(): boolean; ask(): Promise<void> };
}
