"""One folder a job. Jobs import no other job, only what is shared and what decides trust."""
