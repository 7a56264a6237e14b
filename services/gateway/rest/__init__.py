"""What every route over HTTP shares, whatever API it speaks.

body, fields, reading   from bytes to values of the right types, or a refusal that names the field
answered, stream        from a generation to one answer or to events, for as long as the client is there
errors                  which error has which status; each API writes it in its own shape
request_ids             the name of every request
"""
