"""What both roles answer about deployments: how they stand, why, and what was probably meant."""
