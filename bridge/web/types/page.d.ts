// What the page's parts are to each other. What a part makes itself has its type there; this names it for the others.

import type { TemplateResult } from 'lit-html';
import type {
  Ack,
  AddActionRequest,
  Block,
  Card,
  ChatMessage,
  CurationRow,
  FileResult,
  ForgetRequest,
  LearningRow,
  LinkState,
  MemoryState,
  Messages,
  NextDue,
  PermissionRequest,
  PermissionResolved,
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

/** One message as it comes, of one type. */
export interface MessageOf<T extends HeardType> {
  type: T;
  id: string;
  timestamp: number;
  seq?: number | null;
  reply_to?: string | null;
  payload: Heard[T];
}
export type Message = { [T in HeardType]: MessageOf<T> }[HeardType];

/** What a question of a type is answered with. */
export type Answer<T extends keyof Sent, P> = T extends 'memory'
  ? Extract<Heard['memory_result'], { op: P extends { op: infer O } ? O : never }>
  : T extends 'system'
    ? Status
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
  /** What the person may ask the bridge for. */
  offer?: LinkState['offer'];
  /** When what is kept of the agent was so, in seconds since 1970. */
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
  /** What fires next; null where nothing does. */
  nextDue: NextDue | null;
  /** The person's zone, as the sprite has it. */
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
}

export interface ToolPart {
  kind: 'tool';
  key: number;
  toolUseId: string;
  name: string;
  input: ToolInput;
  /** What the call was for, where its input is not kept. */
  title: string | null;
  startedAt: number;
  endedAt: number | null;
  summary: string | null;
  isError: boolean;
  stopped: boolean;
}

export interface PermissionPart extends PermissionRequest {
  kind: 'permission';
  key: number;
  /** Undefined while it is open, null where nobody answered in time. */
  decision: Decision | null | undefined;
}

export type ToolInput = Record<string, unknown>;
export type Part = TextPart | ToolPart | PermissionPart;

/** What a person said, and all that followed. */
export interface Exchange {
  kind: 'exchange';
  key: number;
  missionId: string | null;
  text: string | null;
  /** Who began it. */
  origin: Origin;
  /** The program whose message it is; null for the person's own, and where nobody's began it. */
  askedBy: string | null;
  /** In Unix seconds. */
  at: number;
  status: ExchangeStatus;
  parts: Part[];
  error: { code: string; message: string; retryable: boolean } | null;
  cost: number | null;
  ms: number | null;
  /** In milliseconds, as Date.now(). */
  startedAt: number | null;
  compacting: boolean;
  /** Whether an earlier attempt was cut off before it had done anything. */
  isBegunAgain: boolean;
  rowId: number | null;
  /** Grows with each change, so that who draws compares one number. */
  version: number;
}

/** A line between exchanges. */
export type Notice = NoticeBase & (SessionNotice | LearnedNotice);
interface NoticeBase {
  kind: 'notice';
  key: number;
  id: string | null;
  at: number;
  version: number;
}
interface SessionNotice {
  notice: 'session';
  text: string;
}
interface LearnedNotice {
  notice: 'learned';
  learnings: LearningRow[];
  files: string[];
}
export type NoticeText = SessionNotice | LearnedNotice;

export type Entry = Exchange | Notice;

/** What draws one thing, and draws it again as it now is. */
export interface View<T> {
  element: HTMLElement;
  update(thing: T): void;
}

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
/** What a person says of an action; an empty text takes a due time or a repeat away. */
export type ActionDraft = Partial<Pick<AddActionRequest, 'content' | 'due' | 'rrule' | 'tz'>> & { priority?: number };
/** One of these. */
export type ForgetTarget = Pick<ForgetRequest, 'text' | 'turn' | 'session' | 'learning'>;

/** What a person can do from any of memory's views. */
export interface MemoryActs {
  openTurn(id: number, quote?: string | null): unknown;
  openFile(name: string, version?: number): unknown;
  openLearning(id: number): unknown;
  openLearningsOf(curation: CurationRow): unknown;
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
  stackId: string | null;
  state: 'sending' | 'failed';
  problem: string | null;
  at: number;
}

export type PanelName = 'chat' | 'canvas' | 'memory';

/** What the layout tells a panel. */
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

/** Something that can be done here, by name and by keys. */
export interface Command extends Row {
  id: string;
  group: string;
  when?(): boolean;
}

/** Makes rows for what is typed into the palette. */
export type Provide = (query: string) => Row[] | Promise<Row[]>;

export interface Toast {
  text: string;
  kind?: 'info' | 'success' | 'error';
  action?: { label: string; run(): unknown } | null;
}

export interface DialogAction<T> {
  label: string;
  /** A function is asked when the dialog is answered. */
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

/** What every panel is given: the parts, and what only the whole page can do. */
export interface Page {
  store: Store;
  connection: Connection;
  outbox: Outbox;
  commands: Commands;
  announce: Announce;
  /** Returns how to take it away. */
  toast(toast: Toast): () => void;
  confirm(question: Confirm): Promise<boolean>;
  prompt(question: Prompt): Promise<string | null>;
  dialog<T>(question: Dialog<T>): Promise<T | null>;
  openPalette(): void;
  /** Whether the built-in stand-in answers, whose figures mean nothing. */
  isOffline(): boolean;
  stackId(): string | null;
  setStack(id: string | null): void;
  openPanel(name: PanelName): void;
  unread(name: PanelName): void;
  /** Puts words into the message field. */
  draft(text: string): void;
  openTurn(id: number): Promise<void>;
  openFile(name: string): Promise<void>;
  openLearning(id: number): Promise<void>;
  searchMemory(query?: string): Promise<void>;
  /** Shows what is to be done. */
  openActions(): Promise<void>;
  openCard(id: string): void;
  openMission(id: string): Promise<boolean>;
  /** Shows the question that waits for an answer, or says that there is none. */
  openQuestion(): void;
  openNotifications(): Promise<void>;
  /** The page as an app of its own, where the browser offers it. */
  install: { isOffered(): boolean; ask(): Promise<void> };
}

// --- elements ---

type Properties<E> = { [P in keyof E]?: E[P] | null | false };

/** What h() takes: properties by their own names, attributes by theirs. */
export type Props<E> = Omit<Properties<E>, 'className' | 'dataset' | 'role' | 'style'> & {
  class?: string | null;
  dataset?: Record<string, string>;
  role?: string;
  [attribute: `aria-${string}`]: string | boolean | null;
};
export type Child = Node | string | null | undefined | false;

export interface MakeElement {
  <T extends keyof HTMLElementTagNameMap>(
    tag: T,
    props?: Props<HTMLElementTagNameMap[T]> | null,
    ...children: (Child | Child[])[]
  ): HTMLElementTagNameMap[T];
  (tag: string, props?: Props<HTMLElement> | null, ...children: (Child | Child[])[]): HTMLElement;
}
