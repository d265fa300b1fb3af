// What a validator finds: a field and what is wrong with it, in the shape of the server's own answers.

export interface Problem {
  readonly field: string;
  readonly message: string;
}

export class InvalidMessage extends Error {
  readonly problems: readonly Problem[];

  constructor(what: string, problems: readonly Problem[]) {
    super(`This is not a valid ${what}: ${problems.map((each) => `${each.field} ${each.message}`).join("; ")}.`);
    this.name = "InvalidMessage";
    this.problems = problems;
  }
}
