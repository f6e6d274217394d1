"""What people read: the steady state, tables, pictures, progress."""
