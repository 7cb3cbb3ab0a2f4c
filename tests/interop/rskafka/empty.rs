// Cargo needs a target.
