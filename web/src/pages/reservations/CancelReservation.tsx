// The action that ends a reservation, or takes it back before it begins.

import { api, unwrap } from "../../api/client";
import { word } from "../../lib/commands";
import type { Reservation } from "../../lib/reservation";
import { CopyAs } from "../../parts/CopyAs";
import { asked, useRequest } from "../settings/asked";
import { Deed } from "../settings/Deed";

export function CancelReservation({ reservation, active, onDone }: { reservation: Reservation; active: boolean; onDone: () => void }) {
  const request = useRequest(reservation.id, (id, doing) => unwrap(api.DELETE("/api/v1/reservations/{id}", { params: { path: { id }, query: asked(doing) } })));
  return (
    <Deed
      label={active ? "End now" : "Cancel reservation"}
      title={`${active ? "End" : "Cancel"} the reservation ${reservation.name}`}
      role="operator"
      danger
      request={request}
      onDone={onDone}
      effect={({ nodes }) => (
        <p>
          All jobs may use {nodes.length === 1 ? "its node" : `its ${nodes.length} nodes`} again, unless another reservation includes {nodes.length === 1 ? "it" : "them"}.
        </p>
      )}
    >
      <CopyAs command={`headway reservation delete ${word(reservation.name)}`} />
    </Deed>
  );
}
