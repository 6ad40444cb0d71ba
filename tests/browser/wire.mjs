// A way to a cluster that can be cut, as networks are: what hangs on it breaks, and nobody new gets through.

import { createServer, connect } from "node:net";

/** The same cluster, reached over a wire of its own. */
export async function wired(cluster) {
  const { hostname, port } = new URL(cluster.url);
  const ends = new Set();
  let whole = true;
  let came = 0;
  const server = createServer((near) => {
    if (!whole) return near.destroy();
    const far = connect(Number(port), hostname);
    far.on("data", (bytes) => (came += bytes.length));
    for (const [one, other] of [[near, far], [far, near]]) {
      ends.add(one);
      one.pipe(other);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        ends.delete(one);
        other.destroy();
      });
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    ...cluster,
    url: `http://127.0.0.1:${server.address().port}`,
    cut() {
      whole = false;
      ends.forEach((end) => end.destroy());
    },
    mend() {
      whole = true;
    },
    /** Bytes that have come from the cluster so far, as they were sent. */
    received: () => came,
    async close() {
      this.cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
