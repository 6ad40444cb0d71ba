// The same from a terminal, and from an address.

type Options = Record<string, string | undefined>;

/** What is set of these, as a query. */
export function queryOf(options: Options): string {
  const set = Object.entries(options).filter((pair): pair is [string, string] => pair[1] !== undefined);
  return set.length > 0 ? `?${new URLSearchParams(set)}` : "";
}

/** A word of a shell's line, quoted where it must be. */
export function word(text: string): string {
  return /^[\w.,:@%+/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A command with those of its options that are set. */
export function commandOf(words: string, options: Options): string {
  const set = Object.entries(options).flatMap(([name, value]) => (value === undefined ? [] : [` --${name}=${word(value)}`]));
  return words + set.join("");
}
