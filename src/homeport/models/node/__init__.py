"""At a node: provisioning engines, starting them, watching handoff files. Imports nothing heavy."""
