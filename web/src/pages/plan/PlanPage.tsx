export default function PlanPage() {
  return <h1>Plan</h1>;
}
