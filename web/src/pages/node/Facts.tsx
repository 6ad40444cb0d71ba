// What a node is made of, and how it is labelled.

import { Link } from "@tanstack/react-router";
import type { Node } from "../../api/client";
import { si } from "../../lib/format";
import { Middle } from "../../parts/Name";
import { type Asked, Empty, Panel } from "../../parts/Panel";
import { When } from "../../parts/When";
import { gib } from "./amounts";

export function Labels({ asked, className }: { asked: Asked<Node>; className: string }) {
  return (
    <Panel title="Labels" id="node-labels" className={className} asked={asked} height={60}>
      {({ labels, declared_labels: declared, name }) => {
        const all = Object.entries(labels);
        if (all.length === 0) {
          return (
            <Empty>
              It has none. Jobs choose nodes by them; an operator sets one with <code>headway node label {name} NAME=VALUE</code>.
            </Empty>
          );
        }
        return (
          <ul className="node-labels">
            {all.map(([label, value]) => (
              <li key={label} title={declared[label] === value ? "its agent says so" : "an operator says so"}>
                <code>
                  {label}={value}
                </code>
                <span className="muted"> {declared[label] === value ? "agent" : "operator"}</span>
              </li>
            ))}
          </ul>
        );
      }}
    </Panel>
  );
}

export function Facts({ asked, className }: { asked: Asked<Node>; className: string }) {
  return (
    <Panel title="What it is" id="node-facts" className={className} asked={asked} height={160}>
      {(node) => (
        <dl className="facts">
          {factsOf(node).map(([name, value]) => (
            <div key={name} className="node-fact">
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
          <div className="node-fact">
            <dt>Since</dt>
            <dd>
              <When at={node.registered_at} />
            </dd>
          </div>
          <div className="node-fact">
            <dt>Domain</dt>
            <dd>
              <Link to="/cluster" search={{ q: node.fabric_domain }} className="named" title="nodes that talk to each other at full bandwidth">
                <Middle text={node.fabric_domain} />
              </Link>
            </dd>
          </div>
        </dl>
      )}
    </Panel>
  );
}

const SOURCES: Record<string, string> = { built_in: "the built-in catalog", stated: "a file of the site's", measured: "a probe" };

function factsOf(node: Node): [string, string][] {
  const { hardware } = node;
  const rate = (bytes: number) => `${si(bytes)}B/s`;
  return [
    ["GPUs", `${node.gpus.length} × ${node.gpu_type}${node.emulated ? ", emulated" : ""}`],
    ["Processors", String(node.cpus)],
    ["Memory", gib(node.memory_bytes)],
    ["/dev/shm", gib(node.shm_bytes)],
    ["Own disk", gib(node.local_disk_bytes)],
    ["Address", node.address],
    ["Agent", node.agent_version],
    ...(node.leaving_reason ? ([["Leaves", node.leaving_reason]] as [string, string][]) : []),
    ...(node.runs_as ? ([["Runs jobs as", `${node.runs_as}, ${node.takes_all_owners ? "whoever owns them" : `only those of ${node.runs_as}`}`]] as [string, string][]) : []),
    ["Isolation", node.isolated ? "jobs reach only GPUs that they were granted" : `none: ${node.not_isolated_reason ?? "its agent does not say why"}`],
    ...(hardware
      ? ([
          ["One GPU", `${si(hardware.peak_flop_per_second)}FLOP/s peak, ${si(hardware.matmul_flop_per_second)}FLOP/s at best`],
          ["Its memory", `${gib(hardware.memory_bytes)}, ${rate(hardware.memory_bytes_per_second)}`],
          ["Links", `${rate(hardware.link_bytes_per_second)} between its GPUs, ${rate(hardware.network_bytes_per_second)} per GPU to other nodes`],
          ["By word of", SOURCES[hardware.source] ?? hardware.source],
        ] as [string, string][])
      : []),
  ];
}
