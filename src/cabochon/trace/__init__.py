"""What every step did, shown and proved."""
