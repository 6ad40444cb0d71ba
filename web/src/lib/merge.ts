// JSON merge patches (RFC 7396), as the stream tells what has changed of a row.

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** The row with the patch in it; neither is changed. */
export function merged<T>(row: T, patch: unknown): T {
  return apply(row as Json, patch as Json) as T;
}

function apply(target: Json | undefined, patch: Json): Json {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const known = target !== null && typeof target === "object" && !Array.isArray(target) ? target : {};
  const result: { [key: string]: Json } = { ...known };
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = apply(result[key], value);
  }
  return result;
}
