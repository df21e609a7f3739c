declare const temml: {
  render(
    tex: string,
    element: Element,
    options: { displayMode: boolean; throwOnError: boolean; maxExpand: number; maxSize: number[] },
  ): void;
};
export default temml;
