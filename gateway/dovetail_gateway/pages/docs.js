"use strict";
// Shows /openapi.json. Texts go in as text nodes, so nothing in the document can become markup.

const element = (name, content, ...children) => {
  const made = document.createElement(name);
  if (content) made.textContent = content;
  made.append(...children.filter(Boolean));
  return made;
};

const table = (head, rows) => {
  const cells = (kind, texts) => element("tr", "", ...texts.map((text) => element(kind, String(text ?? ""))));
  return rows.length ? element("table", "", cells("th", head), ...rows.map((row) => cells("td", row))) : null;
};

const schemaText = (schema, schemas, depth = 0) => {
  if (!schema) return "";
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return depth > 3 ? name : schemaText(schemas[name], schemas, depth);
  }
  if (schema.anyOf) return schema.anyOf.map((each) => schemaText(each, schemas, depth)).join(" | ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.type === "array") return `[${schemaText(schema.items, schemas, depth)}]`;
  if (schema.type !== "object" || !schema.properties) return String(schema.type ?? "any");
  const pad = "  ".repeat(depth + 1);
  const lines = Object.entries(schema.properties).map(
    ([name, each]) => `${pad}${name}: ${schemaText(each, schemas, depth + 1)}`);
  return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
};

const shown = (content, schemas) => {
  const [type, body] = Object.entries(content ?? {})[0] ?? [];
  return body ? element("div", "", element("p", type), element("pre", schemaText(body.schema, schemas))) : null;
};

const operation = (method, path, each, schemas) => {
  const parameters = each.parameters.map((one) => [one.name, one.in, one.required ? "required" : "", one.description]);
  const statuses = Object.entries(each.responses).map(([status, one]) => [status, one.description]);
  const good = Object.entries(each.responses).find(([status]) => status < 300)?.[1];
  return element("details", "",
    element("summary", "", element("b", method.toUpperCase()), element("code", path), ` — ${each.summary}`),
    element("p", `Right: ${each["x-required-right"]}`),
    table(["Parameter", "In", "", ""], parameters),
    each.requestBody && element("h4", "Request"), each.requestBody && shown(each.requestBody.content, schemas),
    element("h4", "Answer"), shown(good?.content, schemas),
    table(["Status", ""], statuses));
};

const show = (api) => {
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, each] of Object.entries(methods)) {
      const tag = each.tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(method, path, each, api.components.schemas));
    }
  }
  const sections = [...groups].map(([tag, each]) => element("section", "", element("h2", tag), ...each));
  document.getElementById("operations").replaceChildren(...sections);
};

fetch("/openapi.json").then((answer) => answer.json()).then(show).catch((error) => {
  document.getElementById("operations").textContent = `The document cannot be read: ${error}`;
});
