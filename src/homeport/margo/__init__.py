"""Margo, the specification of workload fleet management at the edge: central as a Workload Fleet Manager, a site as
its client (ADR 0070, 0071)."""
