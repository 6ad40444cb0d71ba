// A reporter of node's test runner: writes the name of each file in which a test failed, one a line.
import { basename } from "node:path";

export default async function* failedFiles(events) {
  const told = new Set();
  for await (const { type, data } of events) {
    const file = data?.file && basename(data.file);
    if (type === "test:fail" && file && !told.has(file)) {
      told.add(file);
      yield `${file}\n`;
    }
  }
}
