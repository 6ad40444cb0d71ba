// Redoc whole, with all it needs (the other bundles want a package that they do not name).
declare module "redoc/bundles/redoc.standalone.js" {
  export function init(document: string, options: object, element: HTMLElement): void;
}
