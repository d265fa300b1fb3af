"""Central as a Margo Workload Fleet Manager (WFM)."""
