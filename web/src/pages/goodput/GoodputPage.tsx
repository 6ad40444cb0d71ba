export default function GoodputPage() {
  return <h1>Goodput</h1>;
}
