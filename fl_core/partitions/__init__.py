"""Who holds which samples under which labels: tasks, Dirichlet draws, label noise."""
