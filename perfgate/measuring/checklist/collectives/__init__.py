"""A job of several processes that time collectives: what they are told, what each of them does, and how the job is run."""
