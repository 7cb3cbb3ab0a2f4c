"""Authorization by ACLs (KIP-11, KIP-290): what each API asks for, the decision, and the refusal in the response.

- ``acls`` decides whether a principal may do an operation on a resource.
- ``table`` says for each API which operations it asks for, and on which resources.
- ``rules`` reads ACLs as people write them.
- ``gate`` takes from a request what is refused, and puts the refusals into the response.
- ``operations`` are the bit fields of authorized operations in responses (KIP-430).

The broker and the proxy's filter ``Authorize`` use the same gate.
"""
