"""What a capability brings to each role: one value for each, in its own folder, and a line in the role's list.

A role imports its own value only, so the node stays light and no role loads what another one needs (ADR 0042).
"""
