// What holds the objective down, and what one more of it is worth.

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Plan } from "../../api/client";
import { Bars } from "../../parts/Bars";
import { Box, Empty } from "../../parts/Panel";
import { objective } from "./words";

const SHOWN = 12;

export function Scarce({ plan }: { plan: Plan }) {
  // Plans from before there was a list of everything have the prices of GPUs alone.
  const older = Object.entries(plan.shadow_prices).map(([type, price]) => ({ of: `GPUs of ${type}`, price }));
  const scarce = (plan.scarce?.length ? plan.scarce : older).filter((one) => one.price > 0);
  const most = Math.max(...scarce.map((one) => one.price), 0);
  return (
    <Box title="Scarce" id="plan-scarce" className="span-5" note="what one more is worth, in units of the objective">
      {scarce.length === 0 ? (
        <Empty>Nothing is: neither more GPUs nor more quota would serve anybody better.</Empty>
      ) : (
        <Bars
          label="What one more of each is worth"
          of={most}
          format={(price) => `+${objective(price)}`}
          bars={scarce.slice(0, SHOWN).map((one) => ({ key: one.of, label: <Named of={one.of} />, value: one.price }))}
        />
      )}
      {scarce.length > SHOWN && (
        <p className="muted">
          the {SHOWN} dearest of {scarce.length}
        </p>
      )}
    </Box>
  );
}

/** What it is about is a page away. */
function Named({ of }: { of: string }): ReactNode {
  const type = /^GPUs of (\S+)$/.exec(of)?.[1];
  if (type) {
    return (
      <Link to="/cluster" search={{ type }} title={of}>
        {of}
      </Link>
    );
  }
  if (of.startsWith("the quota of project ")) {
    return (
      <Link to="/settings" search={{ tab: "projects" }} title={of}>
        {of}
      </Link>
    );
  }
  return <span title={of}>{of}</span>;
}
