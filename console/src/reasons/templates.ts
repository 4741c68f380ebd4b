// Chinese templates by the codes of clauses; {name} is a parameter.
export type Templates = Readonly<Record<string, string>>;
