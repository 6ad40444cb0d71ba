/** A line without axes, for tiles and rows; gaps stay gaps. */
export function Spark({ values, width = 96, height = 24, label }: { values: (number | null | undefined)[]; width?: number; height?: number; label: string }) {
  const known = values.filter((value): value is number => value != null);
  if (known.length < 2) return <span style={{ display: "inline-block", width, height }} aria-hidden />;
  const [low, high] = [Math.min(0, ...known), Math.max(...known)];
  const x = (index: number) => ((index / (values.length - 1)) * (width - 2) + 1).toFixed(1);
  const y = (value: number) => (height - 2 - ((value - low) / (high - low || 1)) * (height - 4)).toFixed(1);
  let pen = "M";
  const path = values
    .map((value, index) => {
      if (value == null) {
        pen = "M";
        return "";
      }
      const part = `${pen}${x(index)} ${y(value)}`;
      pen = "L";
      return part;
    })
    .join("");
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      <path d={path} fill="none" stroke="var(--accent)" strokeWidth="1.5" />
    </svg>
  );
}
