"""What every room needs: errors that teach, numbers with units, and what comes with emuchain by name."""
