# Begins each script that needs two connected sockets of the guest with the address OWN.


def pair():
    with socket.create_server((OWN, 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, peer = server.accept()
        assert peer == client.getsockname() and client.getpeername() == accepted.getsockname()
        return client, accepted


