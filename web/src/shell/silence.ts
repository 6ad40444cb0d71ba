// When a server that is asked every few seconds has not answered for too long.

import { useEffect, useState } from "react";

/** One answer may be late; the second cannot. What is wrong is told within five seconds. */
const SILENT_MS = 4_500;

/**
 * Whether nothing has come since `answeredAt`; before the first answer, since the page is there. Nobody asks while nobody looks: time begins
 * anew when somebody does.
 */
export function useSilence(answeredAt: number): boolean {
  const [silent, setSilent] = useState(false);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const wait = () => {
      clearTimeout(timer);
      setSilent(false);
      if (!document.hidden) timer = setTimeout(() => setSilent(true), SILENT_MS);
    };
    wait();
    document.addEventListener("visibilitychange", wait);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wait);
    };
  }, [answeredAt]);
  return silent;
}
