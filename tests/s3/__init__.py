"""The artifact store on a server of S3 (moto), over HTTP on the loopback interface: `make test-s3` installs both sides."""
