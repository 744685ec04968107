"""Why a job waits, or why a node takes none, in a paragraph."""
