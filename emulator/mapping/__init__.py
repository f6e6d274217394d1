"""Which board holds what: layers cut by channels over boards, what travels between neighbours."""
