"""The surfaces of the task plane: `/v2` to the letter of its contract, `/v1` as OpenAI's clients expect it."""
