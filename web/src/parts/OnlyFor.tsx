// What is for some roles alone: others are told whom it is for, and nothing is asked of the server that it would refuse.

import type { ReactNode } from "react";
import { useWhoami } from "../api/queries";
import { type Role, useCan } from "../api/session";
import { Box, Empty, Loading } from "./Panel";

/** `what` is the title of the box in their place: "The audit". */
export function OnlyFor({ role, what, children }: { role: Role; what: string; children: ReactNode }) {
  const who = useWhoami();
  const may = useCan(role);
  if (may) return children;
  if (!who.data) return <Loading height={120} />;
  return (
    <Box title={what} id="denied">
      <Empty>
        This is for the role {role} and above; yours is {who.data.scope}. An admin gives roles:{" "}
        <code>
          headway user set {who.data.user ?? "USER"} --role {role}
        </code>
        .
      </Empty>
    </Box>
  );
}
