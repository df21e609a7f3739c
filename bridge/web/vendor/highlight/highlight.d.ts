// The package names no type for its tree of tokens.
export type Part = string | { scope?: string; children: Part[] };
declare const highlighter: {
  getLanguage(name: string): object | undefined;
  highlight(
    code: string,
    options: { language: string; ignoreIllegals: boolean },
  ): { _emitter: { rootNode: { children: Part[] } } };
};
export default highlighter;
