"""KDA's relatives as workloads: Gated DeltaNet (`gdn`), GDN-2 (`gdn2`) and preconditioned KDA (`precond_kda`)."""
