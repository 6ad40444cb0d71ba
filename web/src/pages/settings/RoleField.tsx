/** Which role somebody shall have, each with what it may do. */
export function RoleField<R extends string>({ value, roles, onChange }: { value: R; roles: readonly { role: R; may: string }[]; onChange: (role: R) => void }) {
  return (
    <label className="act-field">
      <span>role</span>
      <select className="field" value={value} onChange={(event) => onChange(event.target.value as R)}>
        {roles.map((one) => (
          <option key={one.role} value={one.role}>
            {one.role}: {one.may}
          </option>
        ))}
      </select>
    </label>
  );
}
