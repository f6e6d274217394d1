"""What users write: TOML files and flags become validated, frozen models here, once."""
